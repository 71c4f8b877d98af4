"""`fairring bench`: the time of collectives, DDP steps and init, beside other backends in the same run."""
