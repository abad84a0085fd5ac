"""Problems of the paper's five sources, from the hub or from files, without repetitions."""
