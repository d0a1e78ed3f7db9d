"""The spawner classes that a deployment names."""
