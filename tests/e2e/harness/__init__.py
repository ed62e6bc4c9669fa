"""What the end-to-end tests say things with: a cluster, a namespace of one's own, a release, a storage that counts what is read."""
