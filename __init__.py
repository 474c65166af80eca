"""covey keeps fleets of LLM agents alive; `Fleet` is the way in for other programs."""

__version__ = "0.1.0"
