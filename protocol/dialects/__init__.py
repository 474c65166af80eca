"""How providers talk: request builders and stream readers over bytes, without I/O."""
