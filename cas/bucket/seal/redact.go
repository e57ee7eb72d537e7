package seal

import (
	"fmt"
	"io"
	"log/slog"
)

// redacted keeps what embeds it out of every log and message, whatever the verb.
type redacted struct{}

const redactedText = "[secret]"

func (redacted) Format(f fmt.State, _ rune)   { io.WriteString(f, redactedText) }
func (redacted) String() string               { return redactedText }
func (redacted) GoString() string             { return redactedText }
func (redacted) LogValue() slog.Value         { return slog.StringValue(redactedText) }
func (redacted) MarshalText() ([]byte, error) { return []byte(redactedText), nil }
