package image

// Limits bound what one image may cost the host. A zero field is its default.
type Limits struct {
	// TotalBytes is the sum of all file contents, hidden ones included. Bytes.
	TotalBytes int64
	// FileBytes is the size of one file. Bytes. At most maxFileBytes.
	FileBytes int64
	// Entries counts entries of all layers, hidden ones included: each costs
	// memory here and an inode in the disk.
	Entries int
	// Layers counts layers.
	Layers int
	// MetadataBytes is the sum of names, link targets and extended attributes,
	// which are held in memory. Bytes.
	MetadataBytes int64
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

func (l Limits) withDefaults() Limits {
	if l.TotalBytes <= 0 {
		l.TotalBytes = defaultTotalBytes
	}
	if l.FileBytes <= 0 || l.FileBytes > maxFileBytes {
		l.FileBytes = maxFileBytes
	}
	if l.Entries <= 0 {
		l.Entries = defaultEntries
	}
	if l.Layers <= 0 {
		l.Layers = defaultLayers
	}
	if l.MetadataBytes <= 0 {
		l.MetadataBytes = defaultMetadataBytes
	}
	return l
}
