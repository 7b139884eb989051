"""The JSON API: a module of handlers per noun, each thin over the admin layer."""
