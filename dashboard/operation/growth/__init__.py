"""Disk use: what takes room, how fast it grows, and when its disk will be full."""
