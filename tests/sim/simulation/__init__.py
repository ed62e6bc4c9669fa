"""What pools of many replicas cost, in virtual time: cases, their outcomes, and the page that shows them."""
