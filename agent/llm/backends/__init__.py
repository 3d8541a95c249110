"""Model servers, one file each: one attempt, no retry, no parsing of meaning. Only these open a connection to a model."""
