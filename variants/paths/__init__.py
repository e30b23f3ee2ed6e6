"""Ways to compute an operator faster. A path never changes the meaning; what it cannot do it says, with the reason."""
