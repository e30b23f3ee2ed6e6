"""From weights and values to the output of a head. One readout, one file, named like its `kind`."""
