package gateway

// InboundSlots is how many of the slots for connections into the guest are taken.
func InboundSlots(g *Gateway) int { return len(g.inbound.slots) }
