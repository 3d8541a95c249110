"""What keeps small models honest. Guards look at a step and say something; they never call a model."""
