"""Training: target-written data, captured features, and the loop that fits a drafter to its target."""
