"""What is done to the weights of a row. One rule, one file, named like its `kind`."""
