"""What is done to the output vector of a head. One norm, one file, named like its `kind`."""
