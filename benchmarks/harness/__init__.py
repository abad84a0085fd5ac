"""What all benchmark suites share: texts, clocks, results, targets, and the page made of them."""
