"""The main functions of the fleet's processes."""
