// Package local is the near tier: packs in a folder, and the index that finds chunks in them.
package local
