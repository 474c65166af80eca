"""What is kept: state.db and the journals beside it. The only SQL of the project."""
