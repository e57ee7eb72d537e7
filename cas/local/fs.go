package local

import "io"

// FS is the part of a file system the store uses, so that tests can cut its power. The zero value of Config takes the
// operating system's. Names are paths.
type FS interface {
	MkdirAll(dir string) error
	// Create makes a new file for reading and writing. It is an error when the name exists.
	Create(name string) (File, error)
	// Open opens for reading.
	Open(name string) (File, error)
	// Rename replaces a file of the new name.
	Rename(from, to string) error
	Remove(name string) error
	// List gives the files of a folder, in any order.
	List(dir string) ([]FileInfo, error)
	// SyncDir makes creations, renames and removals in dir durable.
	SyncDir(dir string) error
	// Lock takes an exclusive lock that ends with Close or with the process. ErrLocked when another has it.
	Lock(name string) (io.Closer, error)
	// FreeBytes says how much may still be written below dir.
	FreeBytes(dir string) (int64, error)
}

// File is an open file.
type File interface {
	io.ReaderAt
	io.WriterAt
	io.Closer
	// Sync makes the bytes and the length durable; other metadata needn't be.
	Sync() error
	Truncate(size int64) error
	Size() (int64, error)
}

// FileInfo is one file of a folder.
type FileInfo struct {
	Name  string // without the folder
	Bytes int64
}
