"""What the experiments train and measure: toy tasks, small models, and speech with known word times."""
