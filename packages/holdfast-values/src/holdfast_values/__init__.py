"""Values that JSON does not have, for packages that pass arguments without a type."""
