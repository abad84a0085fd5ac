"""Charts as inline SVG: a small kit, and one module for each chart.

Every colour and font comes from the page's style sheet by class, so that a chart follows the
reader's light or dark theme and the printer, and needs neither a script nor an inline style.
Each chart carries its figures as a table too.
"""
