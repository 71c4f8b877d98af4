"""The rails over RDMA, with no RDMA hardware: virtual machines with soft-RoCE on emulated wires, and what they saw."""
