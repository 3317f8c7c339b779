package guestwork

// Values are those of each series, in the unit that its name ends with; see figures.Unit.
type Values map[string][]float64

// The series of meta, all its steps together, and of stream. Each step of meta has one of its own, such as
// "make, files/s".
const (
	Meta  = "metadata operations, /s"
	Read  = "read in order, MiB/s"
	Write = "write in order and sync, MiB/s"
)

// What a directory of the host's has to reach, as a part of the guest's own disk.
const (
	MinMetaRatio = 0.3 // of Meta
	MinReadRatio = 0.6 // of Read
)

// The steps of meta, in their order.
const (
	Make         = "make" + filesSuffix
	Stat         = "stat" + filesSuffix
	Missing      = "stat missing" + filesSuffix
	MissingAgain = "stat missing again" + filesSuffix
	List         = "list" + filesSuffix
	ReadSmall    = "read" + filesSuffix
	ReadAgain    = "read again" + filesSuffix
	Rename       = "rename" + filesSuffix
	Remove       = "remove" + filesSuffix

	filesSuffix = ", files/s"
)

func (f Values) add(series string, v float64) { f[series] = append(f[series], v) }
