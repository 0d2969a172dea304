"""What people upload: taken in by the web, taken apart by a worker."""
