"""Keys of providers: which one a call takes, which ones rest, and how a token is renewed once for the whole fleet."""
