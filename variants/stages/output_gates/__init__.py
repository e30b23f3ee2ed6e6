"""What the output of a head is multiplied by. One gate, one file, named like its `kind`."""
