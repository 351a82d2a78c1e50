"""The command `sluice spark`: a program of its own, which the gateway starts and never imports."""
