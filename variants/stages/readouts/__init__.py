"""From weights and values to the output of a head. Each file holds one readout and is named by its `kind`."""
