"""Model servers, one file each: one attempt, no retry, no parsing of meaning. Nothing else connects to a model."""
