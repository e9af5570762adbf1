/** An exercise beside the text of its lesson: a field for the answer, and what is right or wrong with it. */

import { useState } from "preact/hooks";
import { AnswerError, checkAnswer, format, type Exercise, type ExerciseTexts, type NumberExercise, type QuizExercise, type Verdict, type WordExercise } from "./answers";
import { words } from "./words";

interface Props<Kind extends Exercise> {
  exercise: Kind;
  texts: ExerciseTexts;
}

export function ExerciseCell({ exercise, texts }: Props<Exercise>) {
  return exercise.kind === "quiz" ? <Quiz exercise={exercise} texts={texts} /> : <Question exercise={exercise} texts={texts} />;
}

function Question({ exercise, texts }: Props<NumberExercise | WordExercise>) {
  const [answer, setAnswer] = useState("");
  const [verdict, setVerdict] = useState<Verdict | null>(null);
  const id = `answer-${exercise.name}`;
  const check = (event: Event) => {
    event.preventDefault();
    try {
      setVerdict(checkAnswer(exercise, answer, texts));
    } catch (error) {
      if (!(error instanceof AnswerError)) throw error;
      setVerdict({ isRight: false, reason: error.message });
    }
  };
  return (
    <form class="answer" onSubmit={check}>
      <label for={id}>{words.answer}</label>
      <input
        id={id}
        value={answer}
        autocomplete="off"
        spellcheck={false}
        placeholder={exercise.kind === "numbers" ? words.numbersHint : words.wordHint}
        onInput={(event) => (setAnswer(event.currentTarget.value), setVerdict(null))}
      />
      <button>{words.check}</button>
      <Reason verdict={verdict} />
    </form>
  );
}

function Quiz({ exercise, texts }: Props<QuizExercise>) {
  const { questions } = exercise;
  const [chosen, setChosen] = useState<(number | null)[]>(questions.map(() => null));
  const [isChecked, setChecked] = useState(false);
  const choose = (question: number, option: number) => {
    setChosen(chosen.map((value, index) => (index === question ? option : value)));
  };
  const rightCount = questions.filter(({ right }, index) => chosen[index] === right).length;
  const isComplete = !chosen.includes(null);
  return (
    <form
      class="quiz"
      onSubmit={(event) => {
        event.preventDefault();
        setChecked(true);
      }}
    >
      <p>{words.quizHint}</p>
      {questions.map(({ question, options, reasons, right }, index) => (
        <fieldset key={index}>
          <legend>
            {index + 1}. {question}
          </legend>
          {options.map((option, position) => (
            <label key={position}>
              <input type="radio" name={`${exercise.name}-${index}`} checked={chosen[index] === position + 1} onChange={() => choose(index, position + 1)} />
              <span>{option}</span>
            </label>
          ))}
          <Reason verdict={isChecked && chosen[index] !== null ? { isRight: chosen[index] === right, reason: reasons[chosen[index] - 1] } : null} />
        </fieldset>
      ))}
      <button>{words.check}</button>
      <p class="verdict" role="status">
        {isChecked && (isComplete ? format(texts.quiz_result, { count: rightCount }) : format(texts.count, { expected: questions.length, count: chosen.filter(Boolean).length }))}
      </p>
    </form>
  );
}

function Reason({ verdict }: { verdict: Verdict | null }) {
  return (
    <p class="verdict" role="status" data-right={verdict?.isRight}>
      {verdict && (
        <>
          <strong>{verdict.isRight ? words.right : words.wrong}</strong> {verdict.reason}
        </>
      )}
    </p>
  );
}
