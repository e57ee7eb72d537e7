package main

import "golang.org/x/sys/unix"

// foresight is what a repair will need, looked up when the workload has just been frozen. The guest is warm then: a
// system call takes microseconds, and what it needs is in memory. After a restore each new kind of call takes a
// millisecond, and a folder may have to be read from disk. Nobody of the workload can change anything until the thaw,
// when it is forgotten.
type foresight struct {
	generation int    // the generation's file, open for writing; -1: there is none yet
	bytes      int64  // its length
	hostname   string // the present one
	hooks      bool   // there may be some
}

// foresee looks.
func (a *agent) foresee() *foresight {
	next := foresight{hostname: hostname(), hooks: !isEmpty(hooksDir)}
	next.generation, next.bytes = a.generation.look()
	return &next
}

// keptFile is a file that stays open for writing.
type keptFile struct {
	path string
	fd   int // -1: not open
	is   unix.Stat_t
}

func newKeptFile(path string) *keptFile { return &keptFile{path: path, fd: -1} }

// look opens what is at the path now, unless that is open already, and gives its length. Only a plain file is taken.
func (k *keptFile) look() (fd int, bytes int64) {
	var now unix.Stat_t
	if err := unix.Lstat(k.path, &now); err != nil || now.Mode&unix.S_IFMT != unix.S_IFREG {
		k.close()
		return -1, 0
	}
	if k.fd < 0 || now.Dev != k.is.Dev || now.Ino != k.is.Ino {
		k.close()
		fd, err := unix.Open(k.path, unix.O_WRONLY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
		if err != nil {
			return -1, 0
		}
		k.fd, k.is = fd, now
	}
	return k.fd, now.Size
}

func (k *keptFile) close() {
	if k.fd >= 0 {
		unix.Close(k.fd)
		k.fd = -1
	}
}

// writeGeneration replaces the generation's file: in place where it is open, since nobody of the workload reads it meanwhile.
func (f *foresight) writeGeneration(text string) error {
	if f == nil || f.generation < 0 {
		return writeAtomically(generationFile, text)
	}
	if err := quickWrite(f.generation, text); err != nil {
		return err
	}
	if int64(len(text)) < f.bytes {
		return quickTruncate(f.generation, int64(len(text)))
	}
	return nil
}

const generationFile = runDir + "/generation"
