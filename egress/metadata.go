package egress

// isMetadata4 reports whether b is an endpoint that hands out instance metadata
// or credentials, whatever range it lies in. Resolvers and clocks at such
// addresses count too: they answer for the cloud's private side.
//
// Sources are the clouds' own documentation, as of 2025.
func isMetadata4(b [4]byte) bool {
	switch b {
	case [4]byte{169, 254, 169, 254}, // EC2, GCE, Azure, OpenStack, Oracle, DigitalOcean, Hetzner and others
		[4]byte{169, 254, 169, 253}, // EC2: resolver, answers for private zones
		[4]byte{169, 254, 169, 123}, // EC2: time service
		[4]byte{169, 254, 170, 2},   // ECS: task credentials
		[4]byte{169, 254, 170, 23},  // EKS: pod identity
		[4]byte{169, 254, 0, 23},    // Tencent Cloud
		[4]byte{169, 254, 42, 42},   // Scaleway
		[4]byte{100, 100, 100, 200}, // Alibaba Cloud
		[4]byte{100, 96, 0, 96},     // Volcengine
		[4]byte{168, 63, 129, 16},   // Azure: WireServer, a public address
		[4]byte{192, 0, 0, 192},     // Oracle Cloud, classic
		[4]byte{192, 80, 8, 124}:    // Equinix Metal, a public address
		return true
	}
	return false
}

// isMetadata6 is isMetadata4 for IPv6.
func isMetadata6(b [16]byte) bool {
	switch b {
	case [16]byte{0: 0xfd, 1: 0x00, 2: 0x0e, 3: 0xc2, 14: 0x02, 15: 0x54}, // fd00:ec2::254, EC2
		[16]byte{0: 0xfd, 1: 0x00, 2: 0x0e, 3: 0xc2, 14: 0x02, 15: 0x53},            // fd00:ec2::253, EC2 resolver
		[16]byte{0: 0xfd, 1: 0x00, 2: 0x0e, 3: 0xc2, 14: 0x01, 15: 0x23},            // fd00:ec2::123, EC2 time
		[16]byte{0: 0xfd, 1: 0x00, 2: 0x0e, 3: 0xc2, 14: 0x00, 15: 0x23},            // fd00:ec2::23, EKS pod identity
		[16]byte{0: 0xfd, 1: 0x20, 3: 0xce, 14: 0x02, 15: 0x54},                     // fd20:ce::254, GCE
		[16]byte{0: 0xfd, 1: 0x00, 3: 0xc1, 12: 0xa9, 13: 0xfe, 14: 0xa9, 15: 0xfe}, // fd00:c1::a9fe:a9fe, Oracle Cloud
		[16]byte{0: 0xfd, 1: 0x00, 3: 0x42, 15: 0x42},                               // fd00:42::42, Scaleway
		[16]byte{0: 0xfd, 1: 0x00, 2: 0xa9, 3: 0xfe, 4: 0xa9, 5: 0xfe, 15: 0x01},    // fd00:a9fe:a9fe::1, Linode
		[16]byte{0: 0xfe, 1: 0x80, 12: 0xa9, 13: 0xfe, 14: 0xa9, 15: 0xfe}:          // fe80::a9fe:a9fe, OpenStack
		return true
	}
	return false
}
