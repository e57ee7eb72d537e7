package qemu

import (
	"encoding/json"
	"fmt"
	"sync"
	"time"
)

// supervise waits for a machine's end, whoever brings it about, and takes the machine apart. It owns the goroutine that
// retries disk errors.
func (m *machine) supervise() {
	var retries sync.WaitGroup
	retries.Go(m.retryDisk)
	memoryLost, closed := m.awaitEnd()
	<-m.in.ended
	retries.Wait()
	status := m.dismantle(false)

	m.mu.Lock()
	m.exit = ending{
		closed: closed, memory: memoryLost, panicked: m.panicked, shutdown: m.shutdown, status: status, passed: m.in.group.limitPassed(),
		stderr: m.in.said.lastLine(), console: m.console.said.lastLine(), panicLine: m.console.panicLine(),
		processTag: fmt.Sprintf("QEMU (process %d)", m.in.id.PID),
	}.exit()
	exit := m.exit
	m.mu.Unlock()
	m.engine.log.Info("machine ended", "pid", m.in.id.PID, "reason", exit.Reason, "detail", exit.Detail)
	close(m.done)
}

// awaitEnd returns when the process has ended or was killed.
func (m *machine) awaitEnd() (memoryLost error, closed bool) {
	lost := m.memory.lost()
	for {
		select {
		case <-m.in.ended:
			return nil, false
		case <-m.closing:
			m.in.kill()
			return nil, true
		case err, ok := <-lost:
			if !ok || err == nil {
				lost = nil // its server ended without a complaint
				continue
			}
			// Never zeros: a guest whose memory can't be served ends.
			m.in.kill()
			return err, false
		case <-m.shutDown:
			// QEMU flushes its disks, which may wait for a server that is gone.
			if !waitFor(m.in.ended, shutdownDeadline) {
				m.in.kill()
			}
			return nil, false
		}
	}
}

// hear is called by the monitor's reader and must not wait.
func (m *machine) hear(e event) {
	switch e.name {
	case "GUEST_PANICKED":
		m.mu.Lock()
		m.panicked = true
		m.mu.Unlock()
	case "SHUTDOWN":
		m.mu.Lock()
		m.shutdown = shutdownReason(e)
		m.mu.Unlock()
		signal(m.shutDown)
	case "BLOCK_IO_ERROR":
		var data struct {
			Action string `json:"action"`
		}
		err := json.Unmarshal(e.data, &data)
		m.engine.log.Warn("disk error", "pid", m.in.id.PID, "event", string(e.data), "err", err)
		if err != nil || data.Action == "stop" {
			signal(m.ioErrors)
		}
	}
}

func signal(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// Waits between two attempts to let a guest go on that QEMU stopped for a disk error. The error is kept from the guest
// (werror=stop, rerror=stop): its file system would go on with lost data.
const (
	firstRetry = 100 * time.Millisecond
	lastRetry  = 5 * time.Second
	calmAfter  = 30 * time.Second // without an error: the next one begins with firstRetry again
)

// retryDisk lets a guest go on after a disk error, again and again; its request is then sent again.
func (m *machine) retryDisk() {
	wait, last := firstRetry, time.Time{}
	for {
		select {
		case <-m.ioErrors:
		case <-m.in.ended:
			return
		}
		if time.Since(last) > calmAfter {
			wait = firstRetry
		}
		last = time.Now()
		if waitFor(m.in.ended, wait) {
			return
		}
		wait = min(2*wait, lastRetry)
		if err := m.goOn(); err != nil {
			m.engine.log.Warn("the guest can't go on after a disk error", "pid", m.in.id.PID, "err", err)
			signal(m.ioErrors)
		}
	}
}
