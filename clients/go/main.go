// Penstock from Go, asking a server with the models of clients/models.
//
//	client HOST:PORT [AUTHORITY.pem]
package main

import (
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"log"
	"os"
	"path/filepath"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"penstock/clients/go/gen/inference"
)

type client struct {
	stub inference.GRPCInferenceServiceClient
}

// connect prepares a channel that sends refused calls again, as the policy of all languages says.
func connect(address, authority string) (*grpc.ClientConn, error) {
	policy, err := os.ReadFile(filepath.Join("..", "retry_policy.json"))
	if err != nil {
		return nil, err
	}
	security := insecure.NewCredentials()
	if authority != "" {
		if security, err = credentials.NewClientTLSFromFile(authority, ""); err != nil {
			return nil, err
		}
	}
	return grpc.NewClient(address,
		grpc.WithTransportCredentials(security),
		grpc.WithDefaultServiceConfig(string(policy)),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(1<<30)))
}

func (c client) unary(ctx context.Context) error {
	first, second := make([]int32, 16), make([]int32, 16)
	for i := range first {
		first[i], second[i] = int32(i), 1
	}
	response, err := c.stub.ModelInfer(ctx, &inference.ModelInferRequest{
		ModelName:        "simple",
		Inputs:           []*inputTensor{tensor("INPUT0", "INT32", 1, 16), tensor("INPUT1", "INT32", 1, 16)},
		RawInputContents: [][]byte{integers(first...), integers(second...)},
	})
	if err != nil {
		return err
	}
	for i, sum := range numbers(response.RawOutputContents[0]) {
		if sum != first[i]+second[i] {
			return fmt.Errorf("%d + %d is not %d", first[i], second[i], sum)
		}
	}
	return nil
}

// metadata asks for statistics, which the server of the check gives only to those who send this.
func (c client) metadata(ctx context.Context) error {
	ctx = metadata.AppendToOutgoingContext(ctx, "triton-grpc-protocol-clients", "friends")
	response, err := c.stub.ModelStatistics(ctx, &inference.ModelStatisticsRequest{Name: "simple"})
	if err != nil {
		return err
	}
	if response.ModelStats[0].InferenceStats.Success.Count < 1 {
		return fmt.Errorf("no request was counted: %v", response)
	}
	return nil
}

func (c client) stream(ctx context.Context) error {
	answers, err := c.generate(ctx, 20)
	if err != nil {
		return err
	}
	for count := 0; ; count++ {
		text, final, err := token(answers)
		if err != nil {
			return err
		}
		fmt.Print(text)
		if final {
			fmt.Println()
			if count < 2 {
				return fmt.Errorf("only %d tokens came", count)
			}
			break
		}
	}
	if _, err = answers.Recv(); err != io.EOF {
		return fmt.Errorf("the stream should have ended: %v", err)
	}
	return nil
}

// cancel leaves after three tokens: the server stops the generation.
func (c client) cancel(ctx context.Context) error {
	ctx, leave := context.WithCancel(ctx)
	defer leave()
	answers, err := c.generate(ctx, 1000)
	if err != nil {
		return err
	}
	for range 3 {
		if _, _, err := token(answers); err != nil {
			return err
		}
	}
	leave()
	return endsWith(answers, codes.Canceled)
}

// deadline gives a quarter of a second to a generation that takes longer.
func (c client) deadline(ctx context.Context) error {
	ctx, leave := context.WithTimeout(ctx, 250*time.Millisecond)
	defer leave()
	answers, err := c.generate(ctx, 1000)
	if err != nil {
		return err
	}
	return endsWith(answers, codes.DeadlineExceeded)
}

// retry asks a model that refuses each id twice.
func (c client) retry(ctx context.Context) error {
	response, err := c.stub.ModelInfer(ctx, &inference.ModelInferRequest{
		ModelName:        "flaky",
		Id:               fmt.Sprintf("go-%d", time.Now().UnixNano()),
		Inputs:           []*inputTensor{tensor("IN", "INT32", 1)},
		RawInputContents: [][]byte{integers(0)},
	})
	if err != nil {
		return err
	}
	if attempts := numbers(response.RawOutputContents[0])[0]; attempts != 3 {
		return fmt.Errorf("%d attempts instead of 3", attempts)
	}
	return nil
}

type inputTensor = inference.ModelInferRequest_InferInputTensor
type answerStream = grpc.BidiStreamingClient[inference.ModelInferRequest, inference.ModelStreamInferResponse]

func (c client) generate(ctx context.Context, maxTokens int) (answerStream, error) {
	answers, err := c.stub.ModelStreamInfer(ctx)
	if err != nil {
		return nil, err
	}
	sampling := fmt.Sprintf(`{"max_tokens": %d, "ignore_eos": true}`, maxTokens)
	err = answers.Send(&inference.ModelInferRequest{
		ModelName: "tiny_llm",
		Inputs: []*inputTensor{
			tensor("text_input", "BYTES", 1), tensor("stream", "BOOL", 1), tensor("sampling_parameters", "BYTES", 1),
		},
		RawInputContents: [][]byte{text("The file is"), {1}, text(sampling)},
		// The last response is then an empty one, so that the end is known when the last token comes.
		Parameters: map[string]*inference.InferParameter{
			"triton_enable_empty_final_response": {
				ParameterChoice: &inference.InferParameter_BoolParam{BoolParam: true},
			},
		},
	})
	if err != nil {
		return nil, err
	}
	return answers, answers.CloseSend()
}

// token is the text of the next response, and whether it is the last one.
func token(answers answerStream) (string, bool, error) {
	message, err := answers.Recv()
	if err != nil {
		return "", false, err
	}
	if message.ErrorMessage != "" {
		return "", false, fmt.Errorf("%s", message.ErrorMessage)
	}
	response := message.InferResponse
	final := response.Parameters["triton_final_response"].GetBoolParam()
	if len(response.RawOutputContents) == 0 {
		return "", final, nil
	}
	return string(response.RawOutputContents[0][4:]), final, nil
}

// endsWith reads what still comes; nil if the call then ends with this code.
func endsWith(answers answerStream, code codes.Code) error {
	for {
		if _, _, err := token(answers); status.Code(err) == code {
			return nil
		} else if err != nil {
			return err
		}
	}
}

func tensor(name, datatype string, shape ...int64) *inputTensor {
	return &inputTensor{Name: name, Datatype: datatype, Shape: shape}
}

func integers(values ...int32) []byte {
	raw, _ := binary.Append(nil, binary.LittleEndian, values)
	return raw
}

func numbers(raw []byte) []int32 {
	values := make([]int32, len(raw)/4)
	_, _ = binary.Decode(raw, binary.LittleEndian, values)
	return values
}

// text is the contents of a BYTES tensor of one element.
func text(value string) []byte {
	return append(binary.LittleEndian.AppendUint32(nil, uint32(len(value))), value...)
}

func main() {
	authority := ""
	if len(os.Args) > 2 {
		authority = os.Args[2]
	}
	channel, err := connect(os.Args[1], authority)
	if err != nil {
		log.Fatal(err)
	}
	defer channel.Close()
	c := client{inference.NewGRPCInferenceServiceClient(channel)}
	for _, feature := range []struct {
		name string
		try  func(context.Context) error
	}{
		{"unary", c.unary}, {"metadata", c.metadata}, {"stream", c.stream},
		{"cancel", c.cancel}, {"deadline", c.deadline}, {"retry", c.retry},
	} {
		ctx, done := context.WithTimeout(context.Background(), 30*time.Second)
		if err := feature.try(ctx); err != nil {
			log.Fatalf("%s: %v", feature.name, err)
		}
		done()
		fmt.Println("ok", feature.name)
	}
}
