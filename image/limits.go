package image

// sizeLimits bound what one image may cost the host. A zero field is its default.
type sizeLimits struct {
	// totalBytes is the sum of all file contents, hidden ones included. Bytes.
	totalBytes int64
	// fileBytes is the size of one file. Bytes. At most maxFileBytes.
	fileBytes int64
	// entries counts entries of all layers, hidden ones included: each costs
	// memory here and an inode in the disk.
	entries int
	// layers counts layers.
	layers int
	// metadataBytes is the sum of names, link targets and extended attributes,
	// which are held in memory. Bytes.
	metadataBytes int64
}

// Defaults and hard bounds.
const (
	// defaultTotalBytes: the largest images in use (CUDA with models) are 20 to 40 GiB.
	defaultTotalBytes = 64 << 30
	// maxFileBytes: above 340 extents (42.5 GiB) compactext4 writes a wrong
	// second extent block.
	maxFileBytes = 32 << 30
	// defaultEntries: large images have 300,000 to 600,000; an inode costs about 500 bytes of memory.
	defaultEntries = 2_000_000
	// defaultLayers: overlay2 stacks at most 127, and no builder writes more.
	defaultLayers = 512
	// defaultMetadataBytes bounds memory against long names and attributes.
	defaultMetadataBytes = 512 << 20
)

func (l sizeLimits) withDefaults() sizeLimits {
	if l.totalBytes <= 0 {
		l.totalBytes = defaultTotalBytes
	}
	if l.fileBytes <= 0 || l.fileBytes > maxFileBytes {
		l.fileBytes = maxFileBytes
	}
	if l.entries <= 0 {
		l.entries = defaultEntries
	}
	if l.layers <= 0 {
		l.layers = defaultLayers
	}
	if l.metadataBytes <= 0 {
		l.metadataBytes = defaultMetadataBytes
	}
	return l
}
