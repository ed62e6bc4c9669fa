"""Programs that run on the bench's hosts, each on its own, with nothing but the standard library."""
