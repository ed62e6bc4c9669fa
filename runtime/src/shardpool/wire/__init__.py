"""What travels: messages of three protocols, built at run time in private descriptor pools, and their bounded conversions."""
