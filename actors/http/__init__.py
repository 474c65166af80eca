"""HTTP to providers: an httpx transport over connections and a pool of our own."""
