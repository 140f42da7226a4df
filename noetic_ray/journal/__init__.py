"""One journal of all that happens: senders, the core that numbers events, readers and stores."""
