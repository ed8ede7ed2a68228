// Asks the pipeline over gRPC with a generated stub, traced by OpenTelemetry's own instrumentation.
//
//	go run . HOST:PORT HOST:PORT_OF_OTLP_HTTP      prints the trace id
package main

import (
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"log"
	"os"

	"go.opentelemetry.io/contrib/instrumentation/google.golang.org/grpc/otelgrpc"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"penstock/examples/traced_pipeline/inference"
)

// text is the contents of a BYTES tensor of one element.
func text(value string) []byte {
	return append(binary.LittleEndian.AppendUint32(nil, uint32(len(value))), value...)
}

func request() *inference.ModelInferRequest {
	input := func(name, datatype string) *inference.ModelInferRequest_InferInputTensor {
		return &inference.ModelInferRequest_InferInputTensor{Name: name, Datatype: datatype, Shape: []int64{1}}
	}
	return &inference.ModelInferRequest{
		ModelName: "rag",
		Id:        "from-go",
		Inputs: []*inference.ModelInferRequest_InferInputTensor{
			input("question", "BYTES"), input("stream", "BOOL"), input("sampling_parameters", "BYTES"),
		},
		RawInputContents: [][]byte{
			text("How does one open a file?"), {1}, text(`{"max_tokens": 24, "temperature": 0, "ignore_eos": true}`),
		},
	}
}

func ask(ctx context.Context, address string) error {
	connection, err := grpc.NewClient(address,
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithStatsHandler(otelgrpc.NewClientHandler()))
	if err != nil {
		return err
	}
	defer connection.Close()
	stream, err := inference.NewGRPCInferenceServiceClient(connection).ModelStreamInfer(ctx)
	if err != nil {
		return err
	}
	if err := stream.Send(request()); err != nil {
		return err
	}
	if err := stream.CloseSend(); err != nil {
		return err
	}
	for {
		response, err := stream.Recv()
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
		if response.ErrorMessage != "" {
			return fmt.Errorf("the server: %s", response.ErrorMessage)
		}
	}
}

func main() {
	ctx := context.Background()
	exporter, err := otlptracehttp.New(ctx, otlptracehttp.WithEndpoint(os.Args[2]), otlptracehttp.WithInsecure())
	if err != nil {
		log.Fatal(err)
	}
	provider := sdktrace.NewTracerProvider(
		sdktrace.WithBatcher(exporter),
		sdktrace.WithResource(resource.NewSchemaless(attribute.String("service.name", "client in Go"))))
	otel.SetTracerProvider(provider)
	otel.SetTextMapPropagator(propagation.TraceContext{})
	ctx, span := provider.Tracer("client").Start(ctx, "ask")
	if err := ask(ctx, os.Args[1]); err != nil {
		log.Fatal(err)
	}
	span.End()
	if err := provider.Shutdown(context.Background()); err != nil {
		log.Fatal(err)
	}
	fmt.Println(span.SpanContext().TraceID())
}
