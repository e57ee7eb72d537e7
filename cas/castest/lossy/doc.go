// Package lossy mounts a castest.CrashFS with FUSE, so that a program that knows no file-system seam, such as Badger with
// its mapped logs, can have its power cut too.
//
// The kernel passes writes on at once, and what was stored into mapped pages when it is synced or written back; what
// arrived and wasn't synced CrashFS loses, tears and reorders. A file that is synced has its name for good, as on ext4, XFS
// and Btrfs. After the cut every request is answered with an error.
//
// The program must be another process than the one that mounts: a thread that waits for a page of the mount would keep
// the Go scheduler from running what is to bring it. For tests, and for Linux; mounting takes root.
package lossy
