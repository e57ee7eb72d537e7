package main

import (
	"sync"
	"time"
)

// choresAfter is when a command's answer has left, even in a guest that is so cold that it takes 20 ms.
const choresAfter = 50 * time.Millisecond

// chores are what can wait until an answer has left. They don't wait for a checkpoint: a guest restored from it would do
// them, cold, before its first answer.
type chores struct {
	mu    sync.Mutex // guards the rest
	list  []func()
	timer *time.Timer // set while there are some
}

// later does a chore after a while, or at the next freeze.
func (c *chores) later(chore func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.list = append(c.list, chore)
	if c.timer == nil {
		c.timer = time.AfterFunc(choresAfter, c.now)
	}
}

// now does all there are.
func (c *chores) now() {
	c.mu.Lock()
	list := c.list
	c.list = nil
	if c.timer != nil {
		c.timer.Stop()
		c.timer = nil
	}
	c.mu.Unlock()
	for _, chore := range list {
		chore()
	}
}
