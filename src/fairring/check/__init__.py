"""`fairring check`: what Fairring sees on this machine and between all ranks."""
