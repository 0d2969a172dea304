"""Work in several streams of a device: what may overlap, what orders it, and who runs it."""
